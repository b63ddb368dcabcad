"""`distill example`: files of made-up tickets, to try the commands on."""
