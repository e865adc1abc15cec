"""The suites, one module per kind; `framework.testing.conformance.catalogue` says which."""
