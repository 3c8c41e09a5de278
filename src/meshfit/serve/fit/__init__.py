"""The funnel for serving: layouts on real servers, one traffic through each, the cheapest that meets."""
