package once

// For the tests of the keys in Redis.
var (
	MarkerKey = markerKey
	StateKey  = stateKey

	BucketOf = bucketOf

	PrepareScript = prepareScript
	BindScript    = bindScript
)
