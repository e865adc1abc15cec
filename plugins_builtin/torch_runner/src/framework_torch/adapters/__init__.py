"""Adapters: low-rank updates of linear maps, for the rows of the requests that name them."""
