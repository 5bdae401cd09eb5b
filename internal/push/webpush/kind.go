package webpush

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/strictjson"
)

// Platform is the name of the platform.
const Platform push.Platform = "webpush"

// Kind returns what the rest of activityd knows of the platform.
func Kind() push.Kind {
	return push.Kind{
		Platform: Platform,
		Settings: []push.Setting{
			{Name: "webpush-key", Required: true, Usage: "`file` of the private VAPID key for browsers; activityd push keys makes one"},
			{Name: "webpush-subject", Required: true, Usage: "how push services reach you: `mailto:address` or an https URL; required with the key"},
			{
				Name: "webpush-allow", Alone: true, Check: func(value string) error { _, err := parseNetworks(value); return err },
				Usage: "`networks` whose push services are sent to although they are not public, as in 10.1.0.0/16,127.0.0.1/32",
			},
		},
		New:       newClient,
		Fields:    []string{fieldSubscription},
		Read:      read,
		NewCheck:  newCheck,
		Show:      show,
		ByMembers: true,
		MustShow:  true, // browsers take the permission from a site that shows nothing
	}
}

func newClient(o push.ClientOptions) (push.Client, error) {
	allow, err := parseNetworks(o.Setting("webpush-allow"))
	if err != nil {
		return push.Client{}, err
	}
	s, err := New(Options{KeyFile: o.Setting("webpush-key"), Subject: o.Setting("webpush-subject"), Allow: allow, RootCAs: o.RootCAs, Log: o.Log})
	if err != nil {
		return push.Client{}, err
	}
	return push.Client{Sender: s, Reload: func([]byte) error { return s.Reload() }, Close: s.Close}, nil
}

func newCheck(setting func(name string) string) func(ctx context.Context, a push.Address) error {
	allow, err := parseNetworks(setting("webpush-allow"))
	look := once(net.DefaultResolver.LookupNetIP)
	return func(ctx context.Context, a push.Address) error {
		if err != nil {
			return err
		}
		return check(ctx, subscriptionOf(a), rule{allow: allow}, look)
	}
}

// maxLookedUp is how many hosts [once] remembers.
const maxLookedUp = 1000

// once returns a lookup that remembers the hosts that were found. It is not safe for concurrent use.
func once(look lookup) lookup {
	known := make(map[string][]netip.Addr)
	return func(ctx context.Context, network, host string) ([]netip.Addr, error) {
		if list, found := known[host]; found {
			return list, nil
		}
		list, err := look(ctx, network, host)
		if err == nil && len(known) < maxLookedUp {
			known[host] = list
		}
		return list, err
	}
}

// parseNetworks reads a list of networks.
func parseNetworks(text string) (list []netip.Prefix, err error) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		network, err := netip.ParsePrefix(word)
		if err != nil {
			return nil, fmt.Errorf("%q: want networks as in 10.1.0.0/16,127.0.0.1/32", word)
		}
		list = append(list, network)
	}
	return list, nil
}

// subscription is where a browser is reached.
type subscription struct {
	push.Secret

	Endpoint string `json:"endpoint,omitempty"`
	P256DH   []byte `json:"p256dh,omitempty"`
	Auth     []byte `json:"auth,omitempty"`
}

// NewAddress returns the address of a browser, of what is in its subscription: the URL of its push
// service, its public key (an uncompressed point of P-256), and the authentication secret.
func NewAddress(endpoint string, p256dh, auth []byte) push.Address {
	return push.NewAddress(endpoint, subscription{Endpoint: endpoint, P256DH: p256dh, Auth: auth})
}

// subscriptionOf returns an address; one without an endpoint if it cannot be read.
func subscriptionOf(a push.Address) (to subscription) {
	if a.Decode(&to) != nil {
		return subscription{}
	}
	return to
}

const fieldSubscription = "subscription"

// read reads a PushSubscription as the browser writes it. It may have more fields than are
// needed: they are the browser's.
func read(o strictjson.Object) (a push.Address) {
	const want = "the subscription, as the browser's PushSubscription.toJSON gives it"
	value, ok := o.Need(fieldSubscription, want)
	if !ok {
		return a
	}
	sub, ok := o.Reader.Object(fieldSubscription, value)
	if !ok {
		return a
	}
	sub.Need("endpoint", "an https URL")
	endpoint, _ := sub.String("endpoint", "an https URL")
	value, ok = sub.Need("keys", "an object with p256dh and auth")
	if !ok {
		return a
	}
	keys, ok := o.Reader.Object(fieldSubscription+".keys", value)
	if !ok {
		return a
	}
	return NewAddress(endpoint, readKey(keys, "p256dh", "an uncompressed point of P-256: 65 bytes"), readKey(keys, "auth", "16 bytes"))
}

// unpadded turns base64 of any kind into that of URLs, without padding.
var unpadded = strings.NewReplacer("+", "-", "/", "_", "=", "")

func readKey(o strictjson.Object, name, want string) []byte {
	want += ", as base64 for URLs"
	o.Need(name, want)
	text, given := o.String(name, want)
	if !given {
		return nil
	}
	key, err := base64.RawURLEncoding.DecodeString(unpadded.Replace(text))
	if err != nil || len(key) == 0 {
		o.Addf(name, "want %s", want)
	}
	return key
}

func show(a push.Address) any {
	u, err := url.Parse(subscriptionOf(a).Endpoint)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	return struct {
		Service string `json:"push_service"`
	}{u.Hostname()}
}
