"""The Jobs page: every job there ever was, its details, its log and the submit form."""
