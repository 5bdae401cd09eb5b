package fcm

import (
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/strictjson"
)

// Platform is the name of the platform.
const Platform push.Platform = "fcm"

// Kind returns the platform as the rest of activityd knows it.
func Kind() push.Kind {
	return push.Kind{
		Platform: Platform,
		Settings: []push.Setting{
			{Name: "fcm-credentials", Required: true, Usage: "`file` of the service account (JSON) for Firebase Cloud Messaging"},
			{Name: "fcm-url", ForTests: true, Check: push.CheckOrigin, Usage: "`URL` to send to instead of Google's; access tokens come from where the service account's file says"},
		},
		New:    newClient,
		Fields: []string{push.FieldToken},
		Read:   func(o strictjson.Object) push.Address { return NewAddress(push.ReadToken(o)) },
		Check:  func(_ func(string) string, a push.Address) error { return check(a) },
	}
}

func newClient(o push.ClientOptions) (push.Client, error) {
	s, err := New(Options{Credentials: o.Keys, URL: o.Setting("fcm-url"), RootCAs: o.RootCAs, Log: o.Log})
	if err != nil {
		return push.Client{}, err
	}
	return push.Client{Sender: s, Reload: s.SetCredentials, Close: s.Close}, nil
}

// address is where an app is reached.
type address struct {
	push.Secret

	Token string `json:"token,omitempty"`
}

// NewAddress returns the address of an app by its registration token.
func NewAddress(token string) push.Address { return push.NewAddress(token, address{Token: token}) }

// tokenOf returns the registration token of an address; "" if it cannot be read.
func tokenOf(a push.Address) string { return push.DecodeAddress[address](a).Token }
