package wake

import "time"

// Tests notice a server that is away sooner, and give one that is slow more time.
func init() { pingEvery, lastTimeout = time.Second, time.Minute }

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
