package push

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"math/big"
)

// SignES256 returns the JSON Web Token (RFC 7519) of a header and claims, which are JSON, signed by
// a key on P-256 (RFC 7515; ES256 of RFC 7518, 3.4). The signature needs no randomness (RFC 6979):
// every process makes the same token.
func SignES256(key *ecdsa.PrivateKey, header, claims []byte) (string, error) {
	encode := base64.RawURLEncoding.EncodeToString
	text := encode(header) + "." + encode(claims)
	digest := sha256.Sum256([]byte(text))
	der, err := key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return "", err
	}
	var pair struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &pair); err != nil {
		return "", err
	}
	var signature [64]byte
	pair.R.FillBytes(signature[:32])
	pair.S.FillBytes(signature[32:])
	return text + "." + encode(signature[:]), nil
}
