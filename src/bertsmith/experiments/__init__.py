"""Looking at runs that are done."""
