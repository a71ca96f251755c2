"""Recognize what a request means: its role, its tool and its arguments."""
