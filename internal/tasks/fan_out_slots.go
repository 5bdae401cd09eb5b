package tasks

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/activityd/activityd/queue"
)

// FanOutSlots is the kind that does what a fan-out left because slots of Redis were out: it
// writes the member's last upload to the sets of its followers that lie in these slots. Only
// activityd enqueues it.
//
// It begins with the first follower, so that all that uploads of a member leave for the same
// slots is the same work. It is no fan-out under way, so that a later upload need not wait
// for slots that may be out for hours.
const FanOutSlots = "fan_out_slots"

var fanOutSlots = kind{
	Name: FanOutSlots, Workers: queue.Workers{Queue: QueueFanOutSlots, Count: 2, Batch: 4}, Changes: FollowerSets,
	DedupeKey: func(of uint64, payload json.RawMessage) (string, error) {
		args, err := decode[PartArgs](payload)
		return partKey(FanOutSlots, of, args), err
	},
	Handler: newUploadHandler, Group: "uploads",
}

// slotsPause is how long slots that are out are left alone. Until then, what further uploads
// leave for them is added to the same task. At most fewSlots slots are usually being moved, and
// not those of a node that is away: they are tried again at once.
const (
	slotsPause = 500 * time.Millisecond
	fewSlots   = 100
)

// partKey is the dedupe key of a part of a fan-out: "fan_out:7:9" is the part of all
// followers of 7 above 9.
func partKey(kind string, of uint64, args PartArgs) string {
	key := fmt.Sprintf("%s:%d:%d", kind, of, args.After)
	slots := args.Slots.String()
	if len(slots) > 40 {
		sum := sha256.Sum256([]byte(slots))
		slots = hex.EncodeToString(sum[:16])
	}
	if slots != "" {
		key += ":" + slots
	}
	return key
}
