"""The job queue: policy and placement are pure; transitions are committed before anybody hears of them."""
