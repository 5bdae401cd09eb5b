package once

// For the tests of the keys in Redis.
var (
	MarkerKey = markerKey
	StateKey  = stateKey

	DecodeState = decodeState
)
