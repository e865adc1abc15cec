"""Commands that talk to servers, measure, work off batches and describe the machine."""
