package metrics

// NewBuildInfo is what each [Server] shows.
var NewBuildInfo = newBuildInfo
