"""Names and files of other tools."""
