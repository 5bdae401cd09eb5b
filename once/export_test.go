package once

// For the tests of the keys in Redis.
var (
	FenceKey = fenceKey
	StateKey = stateKey
)
