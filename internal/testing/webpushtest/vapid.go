package webpushtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
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
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("t is no JWT")
	}
	var decoded [3][]byte
	for i, part := range parts {
		if decoded[i], err = base64.RawURLEncoding.DecodeString(part); err != nil {
			return "", fmt.Errorf("t: %w", err)
		}
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	r, s := new(big.Int), new(big.Int)
	if len(decoded[2]) != 64 || !ecdsa.Verify(public, digest[:], r.SetBytes(decoded[2][:32]), s.SetBytes(decoded[2][32:])) {
		return "", errors.New("the signature is wrong")
	}
	return key, checkClaims(decoded[0], decoded[1], origin, now)
}

func checkClaims(headerJSON, claimsJSON []byte, origin string, now time.Time) error {
	var header struct {
		Typ string `json:"typ"`
		Alg string `json:"alg"`
	}
	var claims struct {
		Aud string `json:"aud"`
		Sub string `json:"sub"`
		Exp int64  `json:"exp"`
	}
	if err := errors.Join(json.Unmarshal(headerJSON, &header), json.Unmarshal(claimsJSON, &claims)); err != nil {
		return err
	}
	left := time.Unix(claims.Exp, 0).Sub(now)
	switch {
	case header.Typ != "JWT" || header.Alg != "ES256":
		return errors.New("the token is not of ES256")
	case claims.Aud != origin:
		return fmt.Errorf("aud is %q, not %q", claims.Aud, origin)
	case left <= 0 || left > 24*time.Hour:
		return fmt.Errorf("exp is in %v", left)
	case !strings.HasPrefix(claims.Sub, "mailto:") && !strings.HasPrefix(claims.Sub, "https:"):
		return fmt.Errorf("sub is %q", claims.Sub)
	}
	return nil
}
