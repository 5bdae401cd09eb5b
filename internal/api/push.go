package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/strictjson"
)

// Push keeps the devices, settings and mutes of members; it is a [*push.MySQL]. For a member that does not exist, a method returns an
// error that wraps [contacts.ErrNoMember]. It must be safe for concurrent
// use and return soon after ctx ends.
type Push interface {
	// Register makes an address a device of a member, with a language or "", or confirms that it is; it moves
	// from any former member.
	Register(ctx context.Context, id member.ID, platform push.Platform, a push.Address, language string) (push.Device, error)
	// Devices returns devices that are gone, too.
	Devices(ctx context.Context, id member.ID) ([]push.Device, error)
	Remove(ctx context.Context, id member.ID, device uint64) (found bool, err error)

	Settings(ctx context.Context, id member.ID) (push.Settings, error)
	SetSettings(ctx context.Context, id member.ID, s push.Settings) error

	Mutes(ctx context.Context, id member.ID) ([]push.Mute, error)
	// Mute returns an error that wraps [push.ErrTooManyMutes] beyond their bound.
	Mute(ctx context.Context, id member.ID, object string, until time.Time) error
	Unmute(ctx context.Context, id member.ID, object string) (found bool, err error)
}

// AddressChecker returns an error, for people and without the address, if there can be no
// device of the platform with it, as [push.Kind].Check does.
type AddressChecker func(ctx context.Context, platform push.Platform, a push.Address) error

var errPushOff = pushOff.problem("this server keeps no devices and sends no notifications, as it runs without MySQL")

// memberHandler is a handler of a route about a member's push.
type memberHandler func(s *Server, k *call, id member.ID) (answer any, err error)

// ofMember returns the handler of a route about a member's push, with the parameters of its query.
func ofMember(handle memberHandler, query []string) handler {
	return func(s *Server, k *call) (any, error) {
		if s.cfg.Push == nil {
			return nil, errPushOff
		}
		var f strictjson.Faults
		id, err := memberOf(k)
		if err != nil {
			f.Addf("id", "%v", err)
		}
		parseQuery(k.QueryString(), &f, query...)
		if len(f) > 0 {
			return nil, invalidParameter.fields(f)
		}
		answer, err := handle(s, k, id)
		if err != nil {
			return nil, fmt.Errorf("of member %s: %w", id, err)
		}
		return answer, nil
	}
}

// readObject reads a body that is an object with no fields but names. read adds faults to the object's reader.
func (s *Server) readObject(c *call, names []string, read func(strictjson.Object)) error {
	body, err := s.readJSON(c)
	if err != nil {
		return err
	}
	root, err := strictjson.Parse(body)
	if err != nil {
		return refused(err, invalidBody)
	}
	r := &strictjson.Reader{Root: "body"}
	if o, ok := r.Object("", root); ok {
		o.Only(names...)
		read(o)
	}
	return refused(r.Err(), invalidBody)
}

// deviceJSON has nothing that is secret: who knows a token, an endpoint or a key can send to
// the device, or read what is sent.
type deviceJSON struct {
	ID         string        `json:"id"`
	Platform   push.Platform `json:"platform"`
	Registered int64         `json:"registered_at"`
	Language   string        `json:"language,omitempty"`
	Gone       int64         `json:"gone_at,omitempty"` // when it was found to be gone
	Reason     string        `json:"gone_reason,omitempty"`
	shown      any           // by the platform, as an object; nil: nothing
}

// MarshalJSON implements [json.Marshaler]. The fields of the platform come last.
func (d deviceJSON) MarshalJSON() ([]byte, error) {
	type plain deviceJSON
	text, err := json.Marshal(plain(d))
	if d.shown == nil || err != nil {
		return text, err
	}
	more, err := json.Marshal(d.shown)
	return slices.Concat(text[:len(text)-1], []byte{','}, more[1:]), err
}

func (s *Server) newDevice(d push.Device) deviceJSON {
	out := deviceJSON{ID: strconv.FormatUint(d.ID, 10), Platform: d.Platform, Registered: d.Registered.Unix(), Language: d.Language}
	if !d.Gone.IsZero() { // its address is erased
		out.Gone, out.Reason = d.Gone.Unix(), d.GoneReason
		return out
	}
	if kind := s.platform(d.Platform); kind != nil && kind.Show != nil {
		out.shown = kind.Show(d.Address)
	}
	return out
}

// platform returns a platform by its name; nil if there is none.
func (s *Server) platform(name push.Platform) *push.Kind { return platformOf(s.cfg.Platforms, name) }

func platformOf(platforms []push.Kind, name push.Platform) *push.Kind {
	i := slices.IndexFunc(platforms, func(k push.Kind) bool { return k.Platform == name })
	if i < 0 {
		return nil
	}
	return &platforms[i]
}

func (s *Server) putDevice(c *call, id member.ID) (any, error) {
	var r registration
	if err := s.readObject(c, append(addressFields(s.cfg.Platforms), "platform", "language"), func(o strictjson.Object) {
		r = readRegistration(o, s.cfg.Platforms)
		if len(o.Reader.Faults) > 0 {
			return
		}
		// It may resolve a name; then there is to be time to register the device.
		ctx, cancel := context.WithTimeout(c.Request().Context(), s.cfg.RequestTimeout/2)
		defer cancel()
		if err := s.cfg.CheckAddress(ctx, r.Kind.Platform, r.Address); err != nil {
			o.Addf(r.Kind.Fields[0], "%v", err)
		}
	}); err != nil {
		return nil, err
	}
	d, err := s.cfg.Push.Register(c.Request().Context(), id, r.Kind.Platform, r.Address, r.Language)
	return map[string]string{"device_id": strconv.FormatUint(d.ID, 10)}, err
}

// registration is a request to register a device.
type registration struct {
	Kind     *push.Kind
	Address  push.Address
	Language string // "": it is not given
}

// addressFields are the fields of an address, by any of the platforms.
func addressFields(platforms []push.Kind) (names []string) {
	for _, kind := range platforms {
		names = append(names, kind.Fields...)
	}
	return names
}

// readRegistration reads a registration. It counts only if there are no faults. Faults do not show the address.
func readRegistration(o strictjson.Object, platforms []push.Kind) (r registration) {
	language, given := o.String("language", "a language tag, as in de or pt-BR")
	if err := push.CheckLanguage(language); given && err != nil {
		o.Addf("language", "%v", err)
	}
	var names []string
	for _, kind := range platforms {
		names = append(names, string(kind.Platform))
	}
	platform := text(o, "platform", strictjson.List(names, "or"))
	if r.Language, r.Kind = language, platformOf(platforms, push.Platform(platform)); r.Kind == nil {
		if platform != "" {
			o.Addf("platform", "unknown platform: want %s", strictjson.List(names, "or"))
		}
		return r
	}
	r.Address = r.Kind.Read(o)
	for _, name := range slices.Compact(slices.Sorted(slices.Values(addressFields(platforms)))) { // of foreign platforms
		if _, given := o.Get(name); given && !slices.Contains(r.Kind.Fields, name) {
			o.Addf(name, "%s has none: want %s", r.Kind.Platform, strictjson.List(r.Kind.Fields, "and"))
		}
	}
	return r
}

func (s *Server) listDevices(c *call, id member.ID) (any, error) {
	devices, err := s.cfg.Push.Devices(c.Request().Context(), id)
	return list("devices", devices, s.newDevice), err
}

func (s *Server) deleteDevice(c *call, id member.ID) (any, error) {
	device, err := member.Parse(c.Param("device")) // ids of devices have the same form
	if err != nil {
		return nil, invalidParameter.fields(strictjson.Faults{{Field: "device", Detail: "want the id of a device, as device_id had it"}})
	}
	found, err := s.cfg.Push.Remove(c.Request().Context(), id, uint64(device))
	if err == nil && !found {
		err = noSuchDevice.problem("member %s has no device %s", id, device)
	}
	return nil, err
}

type settingsJSON struct {
	Types map[string]bool `json:"types"`
	Quiet *quietHoursJSON `json:"quiet_hours"` // null: none
}

type quietHoursJSON struct {
	From string `json:"from"`
	To   string `json:"to"`
	Zone string `json:"time_zone"`
}

func newSettings(s push.Settings) settingsJSON {
	out := settingsJSON{Types: s.Types}
	if out.Types == nil {
		out.Types = map[string]bool{}
	}
	if q := s.Quiet; q.From != q.To {
		out.Quiet = &quietHoursJSON{clock(q.From), clock(q.To), q.Zone}
	}
	return out
}

// clock writes minutes after midnight as 22:00.
func clock(minutes int) string { return fmt.Sprintf("%02d:%02d", minutes/60, minutes%60) }

func (s *Server) getSettings(c *call, id member.ID) (any, error) {
	settings, err := s.cfg.Push.Settings(c.Request().Context(), id)
	return newSettings(settings), err
}

// putSettings replaces all settings of a member.
func (s *Server) putSettings(c *call, id member.ID) (any, error) {
	var settings push.Settings
	if err := s.readObject(c, []string{"types", "quiet_hours"}, func(o strictjson.Object) {
		settings = push.Settings{Types: readTypes(o), Quiet: readQuietHours(o)}
	}); err != nil {
		return nil, err
	}
	return newSettings(settings), s.cfg.Push.SetSettings(c.Request().Context(), id, settings)
}

// maxTypes is how many types of event a member's settings may name.
const maxTypes = 100

func readTypes(o strictjson.Object) map[string]bool {
	types := map[string]bool{}
	value, given := o.Get("types")
	if !given {
		return types
	}
	list, ok := o.Reader.Object("types", value)
	if !ok {
		return types
	}
	for name := range list.All() {
		if err := push.CheckType(name); err != nil {
			list.Addf(name, "%v", err)
			continue
		}
		types[name], _ = list.Bool(name)
	}
	if len(types) > maxTypes {
		o.Addf("types", "names %d types: want at most %d", len(types), maxTypes)
	}
	return types
}

func readQuietHours(o strictjson.Object) (q push.QuietHours) {
	value, given := o.Get("quiet_hours")
	q.Zone = time.UTC.String()
	if !given || string(value) == "null" {
		return q
	}
	hours, ok := o.Reader.Object("quiet_hours", value)
	if !ok {
		return q
	}
	hours.Only("from", "to", "time_zone")
	before := len(o.Reader.Faults)
	q.From, q.To = readClock(hours, "from"), readClock(hours, "to")
	if len(o.Reader.Faults) == before && q.From == q.To {
		hours.Addf("to", "is the same as from: leave out quiet_hours for none")
	}
	q.Zone = text(hours, "time_zone", "a time zone of the IANA database, as in Europe/Berlin")
	if err := (push.QuietHours{Zone: q.Zone}).Check(); q.Zone != "" && err != nil {
		hours.Addf("time_zone", "%v", err)
	}
	return q
}

// readClock reads a time of day as minutes after midnight.
func readClock(o strictjson.Object, name string) int {
	const want, form = "a time of day from 00:00 to 23:59", "15:04"
	text := text(o, name, want)
	at, err := time.Parse(form, text)
	if text != "" && (err != nil || len(text) != len(form)) {
		o.Addf(name, "%q: want %s", strictjson.Clip(text), want)
	}
	return at.Hour()*60 + at.Minute()
}

type muteJSON struct {
	Object string `json:"object"`
	Until  int64  `json:"until"`
}

func (s *Server) listMutes(c *call, id member.ID) (any, error) {
	mutes, err := s.cfg.Push.Mutes(c.Request().Context(), id)
	return list("mutes", mutes, func(m push.Mute) muteJSON { return muteJSON{m.Object, m.Until.Unix()} }), err
}

// maxUntil is the end of the year 9999, in unix seconds.
const maxUntil = 253402300799

func (s *Server) putMute(c *call, id member.ID) (any, error) {
	var object string
	var until time.Time
	if err := s.readObject(c, []string{"object", "until"}, func(o strictjson.Object) {
		const wantUntil = "unix seconds"
		object = text(o, "object", "an object, as in photo:901")
		if err := push.CheckObject(object); object != "" && err != nil {
			o.Addf("object", "%v", err)
		}
		o.Need("until", wantUntil)
		if seconds, given := o.Whole("until", 1, maxUntil); given {
			if until = time.Unix(seconds, 0); !until.After(time.Now()) {
				o.Addf("until", "%d: is over; want %s in the future", seconds, wantUntil)
			}
		}
	}); err != nil {
		return nil, err
	}
	err := s.cfg.Push.Mute(c.Request().Context(), id, object, until)
	if errors.Is(err, push.ErrTooManyMutes) {
		err = tooManyMutes.problem("member %s mutes %d objects already: end one, or wait until one ends", id, push.MaxMutes)
	}
	return nil, err
}

func (s *Server) deleteMute(c *call, id member.ID) (any, error) {
	object := c.QueryParam("object")
	if err := push.CheckObject(object); err != nil {
		return nil, invalidParameter.fields(strictjson.Faults{{Field: "object", Detail: err.Error()}})
	}
	found, err := s.cfg.Push.Unmute(c.Request().Context(), id, object)
	if err == nil && !found {
		err = noSuchMute.problem("member %s does not mute %s", id, object)
	}
	return nil, err
}
