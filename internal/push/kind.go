package push

import (
	"cmp"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strings"

	"github.com/activityd/activityd/internal/strictjson"
)

// Platform is the name of a kind of device, in requests, in rows and as a label of metrics: at most
// 16 characters.
type Platform string

// Kind is all that the rest of activityd knows of a platform. The package that sends to it exports
// one, and the package platforms lists them.
type Kind struct {
	Platform Platform

	// Settings are in the order of the documents. The first one names the file of the keys, which is
	// followed: without it the platform is off.
	Settings []Setting
	// New returns what sends, with the settings and the content of that file. It connects to
	// nothing. Its error is for people.
	New func(o ClientOptions) (Client, error)

	// Fields are those that a registration has beside platform. The first one is what Check is about.
	Fields []string
	// Read reads an address from the fields of a registration. It adds what is wrong to the faults,
	// which quote nothing of the address.
	Read func(o strictjson.Object) Address
	// Check returns an error, for people and without the address, if there can be no such address. It asks no other
	// server, and has no keys: those may be in the processes with workers alone.
	Check func(setting func(name string) string, a Address) error
	// Show returns what of an address is no secret, as an object in JSON. Nil: nothing is.
	Show func(a Address) any

	// MustShow says that a device has to show all that it is sent, so that silent events are not for it.
	MustShow bool
}

// Setting is a setting of a platform.
type Setting struct {
	Name  string // of the flag, as in apns-key
	Usage string // one line, in which backquotes enclose what the value is
	// Required says that it must be given if another one is.
	Required bool
	// Alone says that it may be given without the required ones, as it is about addresses.
	Alone bool
	// Check returns an error, for people, about a value that cannot be. Nil: all can.
	Check func(value string) error
}

// ClientOptions are what a [Client] is made of.
type ClientOptions struct {
	Setting func(name string) string // its value; "": it is not given
	Keys    []byte                   // the content of the file that the first setting names
	RootCAs *x509.CertPool           // nil: the system's
	Log     *slog.Logger
}

// Client is a sender with its keys and its connections.
type Client struct {
	Sender

	// Reload replaces the keys by what their file has now. After an error those before stay.
	Reload func(keys []byte) error
	// Close ends the connections. Nothing may be sent afterwards.
	Close func()
}

// ParseOrigin returns the host:port of a setting like https://host or https://host:port.
func ParseOrigin(text string) (address string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("want https://host or https://host:port")
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")), nil
}

// CheckOrigin is the check of a setting that is to be like that.
func CheckOrigin(text string) error {
	_, err := ParseOrigin(text)
	return err
}

// FieldToken is the field of a registration that has the token of a device.
const FieldToken = "token"

// ReadToken reads it.
func ReadToken(o strictjson.Object) string {
	const want = "the token that the device was given, as a string"
	o.Need(FieldToken, want)
	token, given := o.String(FieldToken, want)
	if given && token == "" {
		o.Addf(FieldToken, "is empty: want %s", want)
	}
	return token
}
