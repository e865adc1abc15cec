"""Every feature beside every other: one list of them, and what each pair has to give."""
