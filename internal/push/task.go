package push

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// The kinds of task. Notify and Target have the actor as key, Deliver the device.
const (
	Notify  = "notify"  // an event is to be targeted
	Target  = "target"  // the next page of its followers
	Deliver = "deliver" // it is to be sent to a device
)

// The queues of the kinds: that of notify and target, and that of deliver.
const (
	QueueNotify = "notify"
	QueuePush   = "push"
)

// NotifyKey is the dedupe key of a notify task: two with the same id are the same event.
// So are two without an id that are equal, if neither was started: who enqueues a batch again
// repeats nothing. (A row has no dedupe key, and an entry of the stream has an id: each of
// those is an event of its own.)
func NotifyKey(actor uint64, payload json.RawMessage) (string, error) {
	var e struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(payload, &e); err != nil {
		return "", err
	}
	if e.ID != "" && len(e.ID) <= MaxID {
		return "notify:" + e.ID, nil
	}
	var fields map[string]any // the names sorted: the server may store them in another order
	if err := json.Unmarshal(payload, &fields); err != nil {
		return "", err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(text)
	return fmt.Sprintf("notify:%d:/%s", actor, hex.EncodeToString(hash[:16])), nil
}
