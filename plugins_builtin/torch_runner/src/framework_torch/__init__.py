"""Model runner, sampler, models and weight loading on torch."""
