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
// it, and the package platforms lists them.
type Kind struct {
	Platform Platform

	// Settings are in the order of the documents. The first names the file of the keys, and the file is
	// followed: without it the platform is off.
	Settings []Setting
	// New returns the client of the settings and the content of that file. It connects to
	// nothing. Its error is for people.
	New func(o ClientOptions) (Client, error)

	// Fields are the fields of a registration beside platform. Check is about the first.
	Fields []string
	// Read reads an address from the fields of a registration. It adds faults, and these
	// quote nothing of the address.
	Read func(o strictjson.Object) Address
	// Check returns an error, for people and without the address, if there can be no such address. It asks no other
	// server, and has no keys: they may be in the processes with workers alone.
	Check func(setting func(name string) string, a Address) error
	// Show returns the part of an address that is no secret, as an object in JSON. Nil: there is none.
	Show func(a Address) any

	// MustShow says that a device has to show all that it is sent, so that silent events are not for it.
	MustShow bool
}

// Setting is a setting of a platform.
type Setting struct {
	Name  string // of the flag, as in apns-key
	Usage string // a line; backquotes enclose the kind of value
	// Required says that it must be given if another setting is.
	Required bool
	// Alone says that it may be given without the required settings, as it is about addresses.
	Alone bool
	// ForTests says that operators need not know it.
	ForTests bool
	// Check returns an error, for people, about a value that cannot be. Nil: all can.
	Check func(value string) error
}

// ClientOptions are for [Kind].New.
type ClientOptions struct {
	Setting func(name string) string // its value; "": it is not given
	Keys    []byte                   // the content of the file that the first setting names
	RootCAs *x509.CertPool           // nil: the system's
	Log     *slog.Logger
}

// Client is a sender with its keys and its connections.
type Client struct {
	Sender

	// Reload replaces the keys by the present content of their file. After an error the keys before stay.
	Reload func(keys []byte) error
	// Close ends the connections when the last message is answered. No message may begin afterwards.
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
