package webpushtest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// Decrypt opens the body of a push message as a browser does (RFC 8291 and RFC 8188),
// with the browser's private key and authentication secret. It has no code in common with
// the sender's encryption.
func Decrypt(body []byte, private *ecdh.PrivateKey, auth []byte) ([]byte, error) {
	if len(body) > 4096 {
		return nil, fmt.Errorf("the body has %d bytes, more than push services must take", len(body))
	}
	if len(body) < 21 {
		return nil, errors.New("the body has no whole header")
	}
	salt, recordSize, rest := body[:16], binary.BigEndian.Uint32(body[16:20]), body[21:]
	idLength := int(body[20])
	if len(rest) < idLength {
		return nil, errors.New("the key id is cut off")
	}
	id, record := rest[:idLength], rest[idLength:]
	if uint64(len(record)) > uint64(recordSize) {
		return nil, errors.New("there is more than one record")
	}
	sender, err := ecdh.P256().NewPublicKey(id)
	if err != nil {
		return nil, fmt.Errorf("the key id: %w", err)
	}
	shared, err := private.ECDH(sender)
	if err != nil {
		return nil, err
	}
	// The HKDF of RFC 5869. A single block is enough everywhere.
	step := func(key []byte, parts ...[]byte) []byte {
		h := hmac.New(sha256.New, key)
		for _, part := range parts {
			h.Write(part)
		}
		return h.Sum(nil)
	}
	one := []byte{1}
	input := step(step(auth, shared), []byte("WebPush: info"), []byte{0}, private.PublicKey().Bytes(), id, one)
	prk := step(salt, input)
	key := step(prk, []byte("Content-Encoding: aes128gcm"), []byte{0}, one)[:16]
	nonce := step(prk, []byte("Content-Encoding: nonce"), []byte{0}, one)[:12]
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	text, err := gcm.Open(nil, nonce, record, nil)
	if err != nil {
		return nil, fmt.Errorf("the record: %w", err)
	}
	for len(text) > 0 && text[len(text)-1] == 0 {
		text = text[:len(text)-1]
	}
	if len(text) == 0 || text[len(text)-1] != 2 {
		return nil, errors.New("the record does not end as the last one must")
	}
	return text[:len(text)-1], nil
}
