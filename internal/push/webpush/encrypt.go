package webpush

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

const (
	recordSize = 4096 // of RFC 8291: push services take no more than a record of it
	saltSize   = 16
	authSize   = 16
	pointSize  = 65                              // an uncompressed point of P-256
	headerSize = saltSize + 4 + 1 + pointSize    // of RFC 8188
	tagSize    = 16                              // of AES-GCM
	maxPayload = 4096 - headerSize - 1 - tagSize // bytes, 3993; the 1 is the delimiter

	// A payload is padded to a multiple of padTo bytes. The length of a ciphertext tells a
	// push service the length of the text, and with that perhaps the text itself, out of a few;
	// steps of 128 bytes hide that of most. Padding all to 4 KiB would hide the rest at ten
	// times the traffic for us and for each phone.
	padTo = 128
)

var errKeys = errors.New("p256dh must be an uncompressed point of P-256, and auth 16 bytes")

// parseKeys checks the keys of a subscription.
func parseKeys(p256dh, auth []byte) (*ecdh.PublicKey, error) {
	if len(p256dh) != pointSize || len(auth) != authSize {
		return nil, errKeys
	}
	public, err := ecdh.P256().NewPublicKey(p256dh) // refuses a point that is not on the curve
	if err != nil {
		return nil, errKeys
	}
	return public, nil
}

// encrypt returns the body of a message as RFC 8291 has it, of at most maxPayload bytes of
// text, under a key and a salt of its own.
func encrypt(text, p256dh, auth []byte) ([]byte, error) {
	browser, err := parseKeys(p256dh, auth)
	if err != nil {
		return nil, err
	}
	ours, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	var salt [saltSize]byte
	_, _ = rand.Read(salt[:]) // it never fails
	return seal(text, padding(len(text)), browser, auth, ours, salt[:])
}

// padding returns with how many zeros a text of n bytes is padded.
func padding(n int) int {
	return min((n+padTo-1)/padTo*padTo, maxPayload) - n
}

// seal is encrypt with everything given, as the vectors of RFC 8291 need it.
func seal(text []byte, zeros int, browser *ecdh.PublicKey, auth []byte, ours *ecdh.PrivateKey, salt []byte) ([]byte, error) {
	shared, err := ours.ECDH(browser)
	if err != nil {
		return nil, err
	}
	public := ours.PublicKey().Bytes()
	secret, err := hkdf.Key(sha256.New, shared, auth, "WebPush: info\x00"+string(browser.Bytes())+string(public), 32)
	if err != nil {
		return nil, err
	}
	prk, err := hkdf.Extract(sha256.New, secret, salt)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Expand(sha256.New, prk, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Expand(sha256.New, prk, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, headerSize+len(text)+1+zeros+tagSize)
	body = append(body, salt...)
	body = binary.BigEndian.AppendUint32(body, recordSize)
	body = append(append(body, byte(len(public))), public...)
	record := body[headerSize : headerSize+len(text)+1+zeros] // zeros, but for the text and the delimiter
	copy(record, text)
	record[len(text)] = 2 // the last record
	return gcm.Seal(body, nonce, record, nil), nil
}
