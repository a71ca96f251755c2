"""The models that the user has: what each is and needs, known before it is loaded; a list of them; and fetching them. Free of torch."""
