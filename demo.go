package activityd

import _ "embed"

// DemoWorld is testdata/demo.json: the sizes, the seed and the word lists of
// which the demo's made-up photo site is generated.
//
//go:embed testdata/demo.json
var DemoWorld []byte
