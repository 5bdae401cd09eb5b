package fcm

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"regexp"
)

// credentials are those of a service account.
type credentials struct {
	project  string
	email    string
	keyID    string // "" if the file has none
	key      *rsa.PrivateKey
	tokenURL string
}

// projectID is what can stand in a path; Google's own rule is narrower.
var projectID = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.:_-]{0,99}$`)

// parseCredentials reads a service account's JSON file, as the Firebase console gives it.
// Its errors quote nothing of it.
func parseCredentials(text []byte) (*credentials, error) {
	var file struct {
		Type         string `json:"type"`
		ProjectID    string `json:"project_id"`
		PrivateKeyID string `json:"private_key_id"`
		PrivateKey   string `json:"private_key"`
		ClientEmail  string `json:"client_email"`
		TokenURI     string `json:"token_uri"`
	}
	if json.Unmarshal(text, &file) != nil {
		return nil, errors.New("is no JSON object of texts: want a service account's key file, as the Firebase console makes it")
	}
	var errs []error
	want := func(name string, ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: "+format, append([]any{name}, args...)...))
		}
	}
	want("type", file.Type == "service_account", "want service_account")
	want("project_id", projectID.MatchString(file.ProjectID), "is missing, or no project id")
	want("client_email", file.ClientEmail != "", "is missing")
	uri, err := url.Parse(file.TokenURI)
	want("token_uri", err == nil && uri.Scheme == "https" && uri.Host != "" && uri.User == nil, "want an https URL, as https://oauth2.googleapis.com/token")
	key, err := parseKey(file.PrivateKey)
	want("private_key", err == nil, "%w", err)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &credentials{file.ProjectID, file.ClientEmail, file.PrivateKeyID, key, file.TokenURI}, nil
}

// parseKey reads an RSA key in PEM.
func parseKey(text string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("is missing, or no PEM")
	}
	if parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if key, ok := parsed.(*rsa.PrivateKey); ok {
			return key, nil
		}
		return nil, errors.New("want an RSA key")
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("cannot be read: want an RSA key in PEM")
	}
	return key, nil
}
