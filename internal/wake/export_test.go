package wake

import "time"

// Tests cannot wait as long for an answer as servers should.
func init() { pingEvery = 200 * time.Millisecond } //nolint:gochecknoinits // before any test runs

// Encode and Decode are how names become a message and come out of it.
var (
	Encode = encode
	Decode = decode
	Valid  = valid
)

// MaxPayload is the size of a message, in bytes.
const MaxPayload = maxPayload

// Burst is the time within which notifications share a message.
const Burst = burst
