package apns

import (
	"strings"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/strictjson"
)

// Platform is the name of the platform.
const Platform push.Platform = "apns"

// Kind returns the platform as the rest of activityd knows it.
func Kind() push.Kind {
	return push.Kind{
		Platform: Platform,
		Settings: []push.Setting{
			{Name: "apns-key", Required: true, Usage: "`file` of the key for Apple's push service, named AuthKey_ID.p8 as by Apple, or a link to it; read again when it changes, as are the other two"},
			{Name: "apns-team-id", Required: true, Usage: "the `id` of the team that the key belongs to; required with the key"},
			{Name: "apns-topic", Required: true, Usage: "the app's bundle `id`; required with the key"},
			{Name: "apns-url", ForTests: true, Check: push.CheckOrigin, Usage: "`URL` to send to instead of Apple's two hosts"},
		},
		New:    newClient,
		Fields: []string{push.FieldToken, fieldEnvironment},
		Read:   read,
		Check:  func(_ func(string) string, a push.Address) error { return check(addressOf(a)) },
		Show:   show,
	}
}

func newClient(o push.ClientOptions) (push.Client, error) {
	// The id stands in the name of the file: so a new key can have a new id without a restart.
	id := func() string { return keyIDOf(o.Setting("apns-key")) }
	s, err := New(Options{
		KeyPEM: o.Keys, KeyID: id(), TeamID: o.Setting("apns-team-id"), Topic: o.Setting("apns-topic"), URL: o.Setting("apns-url"), RootCAs: o.RootCAs,
	})
	if err != nil {
		return push.Client{}, err
	}
	return push.Client{Sender: s, Reload: func(text []byte) error { return s.SetKey(text, id()) }, Close: s.Close}, nil
}

// address is where a phone is reached.
type address struct {
	push.Secret

	Token   string `json:"token,omitempty"` // hexadecimal
	Sandbox bool   `json:"sandbox,omitempty"`
}

// NewAddress returns the address of a phone by its token, in hexadecimal digits of either case.
func NewAddress(token string, isSandbox bool) push.Address {
	return push.NewAddress(strings.ToLower(token), address{Token: token, Sandbox: isSandbox})
}

// addressOf returns an address; it is without a token if it cannot be read.
func addressOf(a push.Address) address { return push.DecodeAddress[address](a) }

const (
	fieldEnvironment = "environment"

	production = "production"
	sandbox    = "sandbox"
)

func read(o strictjson.Object) push.Address {
	token := push.ReadToken(o)
	want := strictjson.List([]string{production, sandbox}, "or")
	o.Need(fieldEnvironment, want)
	name, given := o.String(fieldEnvironment, want)
	if given && name != production && name != sandbox {
		o.Addf(fieldEnvironment, "%q: want %s", strictjson.Clip(name), want)
	}
	return NewAddress(token, name == sandbox)
}

func show(a push.Address) any {
	shown := struct {
		Environment string `json:"environment"`
	}{production}
	if addressOf(a).Sandbox {
		shown.Environment = sandbox
	}
	return shown
}
