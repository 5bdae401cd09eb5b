package push

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// Platform is the kind of a device, and of the service that reaches it.
type Platform string

// The platforms.
const (
	APNs    Platform = "apns"    // Apple Push Notification service
	WebPush Platform = "webpush" // RFC 8030
	FCM     Platform = "fcm"     // Firebase Cloud Messaging, HTTP v1
)

// Platforms returns all platforms.
func Platforms() []Platform { return []Platform{APNs, WebPush, FCM} }

// Device is a phone or a browser of a member.
type Device struct {
	ID         uint64
	Member     member.ID
	Platform   Platform
	Address    Address
	Registered time.Time // when its address was last confirmed, by the database's clock
	Language   string    // a tag of BCP 47; "": it is not known
}

// Address is where a device is reached. All of it is secret: it is printed and logged as
// "secret", and is marshalled by nothing but the store.
type Address struct {
	Token    string // apns: hexadecimal; fcm
	Sandbox  bool   // apns: the environment is sandbox
	Endpoint string // webpush: the URL of the push service
	P256DH   []byte // webpush: the browser's public key, an uncompressed point of P-256
	Auth     []byte // webpush: the authentication secret, 16 bytes
}

const secret = "secret"

// String implements [fmt.Stringer].
func (Address) String() string { return secret }

// Format implements [fmt.Formatter], for all verbs.
func (Address) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(secret)) }

// LogValue implements [slog.LogValuer].
func (Address) LogValue() slog.Value { return slog.StringValue(secret) }

// MarshalJSON implements [json.Marshaler].
func (Address) MarshalJSON() ([]byte, error) { return []byte(`"` + secret + `"`), nil }
