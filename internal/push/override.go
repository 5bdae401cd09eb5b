package push

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/strictjson"
)

// overrideRule says what an event's own object for a platform may not change in the platform's
// message: the address, the collapse id, the expiry, and the fields by which activityd informs apps.
type overrideRule struct {
	// kept are places that stay as they are, and so do the objects around them. A place that ends
	// with a dot may be added to, but stays an object.
	kept []string
	// silent are kept in a silent message, too: it would be shown.
	silent []string
	// texts is a place whose values are texts.
	texts string
}

// overrideRules are by the names of platforms, which events are read without knowing otherwise.
var overrideRules = map[Platform]overrideRule{
	"apns": {
		kept:   []string{"event", "type", "object", "actor", "count", "data", "aps.alert."},
		silent: []string{"aps"},
	},
	"webpush": {
		kept: []string{"event", "type", "object", "actor", "count", "data", "tag", "urgent", "expires"},
	},
	"fcm": {
		kept: []string{
			"token", "topic", "condition", "name", "data.event", "data.type", "data.object", "data.actor", "data.count", "data.data",
			"notification.", "android.collapse_key", "android.priority", "android.ttl", "android.notification.tag", "apns.headers", "webpush.headers",
		},
		silent: []string{"notification", "android.notification", "apns", "webpush"},
		texts:  "data",
	},
}

// overridable returns the platforms of which an event may have an object of its own.
func overridable() []Platform { return slices.Sorted(maps.Keys(overrideRules)) }

// platformFields are the fields of these objects.
func platformFields() (names []string) {
	for _, p := range overridable() {
		names = append(names, string(p))
	}
	return names
}

// checkOverrides adds a fault for each place that an override must not touch, and makes the overrides
// canonical.
func (e *Event) checkOverrides(o strictjson.Object) {
	e.Override = maps.Clone(e.Override)
	for _, p := range slices.Sorted(maps.Keys(e.Override)) {
		rule, known := overrideRules[p]
		place := o.Reader.At(o.Place, string(p))
		patch, err := strictjson.Parse(e.Override[p])
		switch {
		case !known:
			o.Reader.Addf(place, "is no platform")
			continue
		case err != nil:
			o.Reader.Addf(place, "%v", err)
			continue
		case patch[0] != '{':
			o.Reader.Addf(place, "want an object, got %s", strictjson.TypeName(patch))
			continue
		case len(patch) > 2*MaxContent: // what follows is then soon done
			o.Reader.Addf(place, "has %d bytes: want at most %d", len(patch), MaxContent)
			continue
		}
		before := len(o.Reader.Faults)
		e.Override[p] = canonical(o.Reader, place, patch, 1)
		if len(o.Reader.Faults) > before {
			continue
		}
		kept := rule.kept
		if e.Silent {
			kept = slices.Concat(kept, rule.silent)
		}
		for _, path := range kept {
			refuseTouch(o.Reader, place, e.Override[p], strings.Split(path, "."))
		}
		if object, ok := o.Reader.Object(place, e.Override[p]); ok && rule.texts != "" {
			refuseOthers(object, rule.texts)
		}
	}
}

// refuseTouch adds a fault if a patch changes what is at a path, or puts something else than an object
// around it.
func refuseTouch(r *strictjson.Reader, place string, patch json.RawMessage, path []string) {
	if patch[0] != '{' {
		if !slices.ContainsFunc(r.Faults, func(f strictjson.Fault) bool { return f.Field == place }) {
			r.Addf(place, "stays an object, got %s", strictjson.TypeName(patch))
		}
		return
	}
	o, _ := r.Object(place, patch)
	if path[0] == "" {
		return
	}
	value, given := o.Get(path[0])
	switch {
	case !given:
	case len(path) == 1:
		r.Addf(r.At(place, path[0]), "is activityd's own: leave it out")
	default:
		refuseTouch(r, r.At(place, path[0]), value, path[1:])
	}
}

// refuseOthers adds a fault for each value of a member that is no text, or has a name that FCM reserves.
func refuseOthers(o strictjson.Object, name string) {
	value, given := o.Get(name)
	if !given || value[0] != '{' {
		return
	}
	data, _ := o.Reader.Object(o.Reader.At(o.Place, name), value)
	for name, value := range data.All() {
		switch {
		case value[0] != '"':
			data.Addf(name, "want a text, got %s", strictjson.TypeName(value))
		case name == "" || name == "from" || name == "message_type" || strings.HasPrefix(name, "google") || strings.HasPrefix(name, "gcm"):
			data.Addf(name, "is a name that FCM refuses")
		}
	}
}

// Merge returns a JSON value with a patch (RFC 7386): what is in the patch replaces what has its name, null takes it away,
// and objects are merged. Both are
// valid JSON without names that stand twice, and the result is not longer than both. A nil patch changes nothing.
func Merge(target, patch json.RawMessage) (json.RawMessage, error) {
	if patch == nil {
		return target, nil
	}
	if patch = bytes.TrimSpace(patch); len(patch) == 0 || patch[0] != '{' {
		return patch, nil
	}
	names, have, err := membersOf(target)
	if err != nil {
		return nil, err
	}
	changed, with, err := membersOf(patch)
	if err != nil {
		return nil, err
	}
	for _, name := range changed {
		old, there := have[name]
		if !there {
			names = append(names, name)
		}
		if have[name], err = Merge(old, with[name]); err != nil {
			return nil, err
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return string(with[name]) == "null" })
	out := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, encoded(name)...), ':')
		out = append(out, have[name]...)
	}
	return append(out, '}'), nil
}

// membersOf returns the members of an object, and their names in order; none of what is no object.
func membersOf(value json.RawMessage) (names []string, of map[string]json.RawMessage, err error) {
	of = make(map[string]json.RawMessage)
	if value = bytes.TrimSpace(value); len(value) == 0 || value[0] != '{' {
		return nil, of, nil
	}
	r := &strictjson.Reader{Root: "the object"}
	o, ok := r.Object("", value)
	if !ok {
		return nil, nil, fmt.Errorf("merge: %w", r.Err())
	}
	for name, v := range o.All() {
		names, of[name] = append(names, name), v
	}
	return names, of, nil
}
