package webpush

import (
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/strictjson"
)

// Platform is the name of the platform.
const Platform push.Platform = "webpush"

// Kind returns the platform as the rest of activityd knows it.
func Kind() push.Kind {
	return push.Kind{
		Platform: Platform,
		Settings: []push.Setting{
			{Name: "webpush-key", Required: true, Usage: "`file` of the private VAPID key for browsers; activityd push keys makes one"},
			{Name: "webpush-subject", Required: true, Usage: "how push services reach you: `mailto:address` or an https URL; required with the key"},
			{
				Name: "webpush-hosts", Alone: true, Check: func(value string) error { _, err := parseHosts(value); return err },
				Usage: "`hosts` of push services beside those of Chrome, Firefox, Edge and Safari, as in push.example.org,*.push.example.org",
			},
		},
		New:      newClient,
		Fields:   []string{fieldSubscription},
		Read:     read,
		Check:    check,
		Show:     show,
		MustShow: true, // browsers take the permission from a site that shows nothing
	}
}

func newClient(o push.ClientOptions) (push.Client, error) {
	hosts, err := parseHosts(o.Setting("webpush-hosts"))
	if err != nil {
		return push.Client{}, err
	}
	s, err := New(Options{Key: o.Keys, Subject: o.Setting("webpush-subject"), Hosts: hosts, RootCAs: o.RootCAs, Log: o.Log})
	if err != nil {
		return push.Client{}, err
	}
	return push.Client{Sender: s, Reload: s.SetKey, Close: s.Close}, nil
}

// check returns an error, for people, if the subscription cannot be, or is at a push service that is not sent to.
func check(setting func(name string) string, a push.Address) error {
	others, err := parseHosts(setting("webpush-hosts"))
	if err != nil {
		return err
	}
	to := subscriptionOf(a)
	if _, err := parseEndpoint(to.Endpoint, others); err != nil {
		return err
	}
	_, err = parseKeys(to.P256DH, to.Auth)
	return err
}

// subscription is where a browser is reached.
type subscription struct {
	push.Secret

	Endpoint string `json:"endpoint,omitempty"`
	P256DH   []byte `json:"p256dh,omitempty"`
	Auth     []byte `json:"auth,omitempty"`
}

// NewAddress returns the address of a browser, by its subscription: the URL of its push
// service, its public key (an uncompressed point of P-256), and the authentication secret.
func NewAddress(endpoint string, p256dh, auth []byte) push.Address {
	return push.NewAddress(endpoint, subscription{Endpoint: endpoint, P256DH: p256dh, Auth: auth})
}

// subscriptionOf returns an address; it is without an endpoint if it cannot be read.
func subscriptionOf(a push.Address) subscription { return push.DecodeAddress[subscription](a) }

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
