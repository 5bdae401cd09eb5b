package wake

import "time"

// Tests notice a dead server sooner, and give a slow server more time.
func init() { pingEvery, lastTimeout = time.Second, time.Minute }

// Encode and Decode are how names become a message and come out of it.
var (
	Encode = encode
	Decode = decode
	Valid  = valid
)

// MaxPayload is the size of a message, in bytes.
const MaxPayload = maxPayload

// Burst is the time of a burst.
const Burst = burst
