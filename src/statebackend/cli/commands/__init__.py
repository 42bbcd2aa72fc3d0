"""One module for each command; `group` imports it when the command is used."""
