"""Native model definitions: one decoder, and one line of data per architecture."""
