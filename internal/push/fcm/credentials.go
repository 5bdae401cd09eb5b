package fcm

import (
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"

	"github.com/golang-jwt/jwt/v5"
)

// credentials are the credentials of a service account.
type credentials struct {
	project  string
	email    string
	keyID    string // "" if the file has none
	key      *rsa.PrivateKey
	tokenURL *url.URL
}

// projectID matches the ids that can stand in a path; Google's own rule is narrower.
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
	want := func(name string, ok bool, text string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %s", name, text))
		}
	}
	want("type", file.Type == "service_account", "want service_account")
	want("project_id", projectID.MatchString(file.ProjectID), "is missing, or no project id")
	want("client_email", file.ClientEmail != "", "is missing")
	uri, err := url.Parse(file.TokenURI)
	want("token_uri", err == nil && uri.Scheme == "https" && uri.Host != "" && uri.User == nil, "want an https URL, as https://oauth2.googleapis.com/token")
	key, err := jwt.ParseRSAPrivateKeyFromPEM([]byte(file.PrivateKey))
	want("private_key", err == nil, "is missing, or no RSA key in PEM")
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &credentials{file.ProjectID, file.ClientEmail, file.PrivateKeyID, key, uri}, nil
}
