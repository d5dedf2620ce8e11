"""The kernel that a fusion makes: its bytes, the sectors that it fetches, its work, its flags."""
