package push

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/activityd/activityd/internal/strictjson"
)

// overridable are the platforms of which an event may have an object of its own.
var overridable = []string{"apns", "fcm", "webpush"}

// checkOverrides adds a fault for each override that is no object, and makes the overrides canonical. What
// they change in a message is the producer's affair; [Event.checkSize] bounds their bytes.
func (e *Event) checkOverrides(o strictjson.Object) {
	e.Override = maps.Clone(e.Override)
	for _, p := range slices.Sorted(maps.Keys(e.Override)) {
		place := o.Reader.At(o.Place, string(p))
		patch, err := strictjson.Parse(e.Override[p])
		switch {
		case !slices.Contains(overridable, string(p)):
			o.Reader.Addf(place, "is no platform")
		case err != nil:
			o.Reader.Addf(place, "%v", err)
		case patch[0] != '{':
			o.Reader.Addf(place, "want an object, got %s", strictjson.TypeName(patch))
		case len(patch) > 2*MaxContent: // the canonical form is soon made
			o.Reader.Addf(place, "has %d bytes: want at most %d", len(patch), MaxContent)
		default:
			e.Override[p] = canonical(o.Reader, place, patch, 1)
		}
	}
}

// Merge returns a JSON value with a patch (RFC 7386): a value of the patch replaces the value of its name, null
// deletes it, and objects are merged. Both are valid compact JSON. A nil patch changes nothing.
func Merge(target, patch json.RawMessage) (json.RawMessage, error) {
	if patch == nil {
		return target, nil
	}
	if patch[0] != '{' {
		return patch, nil
	}
	have, with := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if len(target) > 0 && target[0] == '{' {
		if err := json.Unmarshal(target, &have); err != nil {
			return nil, err
		}
	}
	if err := json.Unmarshal(patch, &with); err != nil {
		return nil, err
	}
	for name, value := range with {
		if string(value) == "null" {
			delete(have, name)
			continue
		}
		merged, err := Merge(have[name], value)
		if err != nil {
			return nil, err
		}
		have[name] = merged
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // it would make six bytes of one
	err := encoder.Encode(have)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}
