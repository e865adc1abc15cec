"""`framework bench`: what scheduling costs, and what it brings.  Needs numpy alone."""
