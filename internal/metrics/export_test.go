package metrics

// NewBuildInfo is the metric of the build.
var NewBuildInfo = newBuildInfo
