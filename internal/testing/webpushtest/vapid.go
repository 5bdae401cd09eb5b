package webpushtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// verify checks the header Authorization by RFC 8292 and returns the public key in it, in
// base64url.
func verify(header, origin string, now time.Time) (key string, err error) {
	fields, ok := strings.CutPrefix(header, "vapid ")
	if !ok {
		return "", errors.New("no vapid authorization")
	}
	var token string
	for field := range strings.SplitSeq(fields, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "t":
			token = value
		case "k":
			key = value
		}
	}
	point, err := base64.RawURLEncoding.DecodeString(key)
	if err != nil {
		return "", fmt.Errorf("k: %w", err)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return "", fmt.Errorf("k: %w", err)
	}
	var claims jwt.RegisteredClaims
	parsed, err := jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return public, nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience(origin), jwt.WithExpirationRequired(), jwt.WithTimeFunc(func() time.Time { return now }))
	switch {
	case err != nil:
		return "", err
	case parsed.Header["typ"] != "JWT":
		return "", errors.New("the token is no JWT")
	case claims.ExpiresAt.Sub(now) > 24*time.Hour:
		return "", fmt.Errorf("exp is in %v", claims.ExpiresAt.Sub(now))
	case !strings.HasPrefix(claims.Subject, "mailto:") && !strings.HasPrefix(claims.Subject, "https:"):
		return "", fmt.Errorf("sub is %q", claims.Subject)
	}
	return key, nil
}
