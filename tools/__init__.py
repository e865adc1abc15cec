"""What keeps pages and snapshots of this repository equal to its code."""
