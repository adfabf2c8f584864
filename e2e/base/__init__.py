"""Types that every room shares. Standard library only, imports nothing of ours."""
