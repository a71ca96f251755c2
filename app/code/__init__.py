"""The page on which people accelerate attention in their own code."""
