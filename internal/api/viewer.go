package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/strictjson"
)

// pathOfViewers begins the paths for viewers themselves. Their browsers ask
// for them, from the pages of [Config.AllowOrigins]. An answer reveals nothing that the
// viewer may not see.
const pathOfViewers = "/v1/me/"

func isForViewers(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, pathOfViewers) }

// memberOf returns the member that a request is about: that of the token, or else that of the
// path.
func memberOf(k *call) (member.ID, error) {
	if id := k.access.viewer; id != 0 {
		return id, nil
	}
	return member.Parse(k.Param("id"))
}

// viewerPhotos is [Server.recentContactPhotos] for the viewer itself, without all that is for
// operators.
func (s *Server) viewerPhotos(c *call) (any, error) {
	var f strictjson.Faults
	limit := readLimit(parseQuery(c.QueryString(), &f, "limit"), &f)
	if len(f) > 0 {
		return nil, invalidParameter.fields(f)
	}
	v := contacts.Viewer{ID: c.access.viewer}
	a, err := s.cfg.Reader.Read(c.Request().Context(), v, limit)
	if err != nil {
		return nil, fmt.Errorf("reading for viewer %s: %w", v.ID, err)
	}
	body, err := json.Marshal(newAnswer(v, a))
	if err != nil {
		return nil, fmt.Errorf("encoding the response: %w", err)
	}
	// The browser may keep it, for this member, and asks each time whether it still holds.
	return nil, c.tagged("private, no-cache", entityTag(body), typeJSON, body)
}

// tagged answers with a body, or says that the client has it.
func (k *call) tagged(cacheControl, tag, contentType string, body []byte) error {
	header := k.Response().Header()
	header.Set(echo.HeaderCacheControl, cacheControl)
	header.Set("ETag", tag)
	if namesTag(k.Request().Header.Values("If-None-Match"), tag) {
		return k.NoContent(http.StatusNotModified)
	}
	return k.Blob(http.StatusOK, contentType, body)
}

// entityTag returns the strong tag of a body. It comes from the answer and nothing else,
// and is the same in all processes.
func entityTag(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
}

// namesTag reports whether the values of an If-None-Match are *, or have a tag of ours in their lists, weak or strong. It has
// no comma and no quote inside.
func namesTag(values []string, tag string) bool {
	return slices.ContainsFunc(strings.Split(strings.Join(values, ","), ","), func(one string) bool {
		one = strings.TrimSpace(one)
		return one == "*" || strings.TrimPrefix(one, "W/") == tag
	})
}

// concealed returns a problem as viewers get it. A read that needs a walk may be refused, or
// end late, where proven reads are answered; and the need depends on photos that the
// viewer may not see. So all that is not to be had now looks the same.
func (p *problem) concealed() *problem {
	switch {
	case p.Status == http.StatusServiceUnavailable || p.Status == http.StatusGatewayTimeout:
		return unavailable.problem("there is no answer now; try again in a few seconds")
	case p.Type == noSuchMember.uri():
		return noSuchMember.problem("the member of the token does not exist")
	}
	return p
}

// CheckOrigin returns an error unless text is an origin as a browser writes it in the header
// Origin.
func CheckOrigin(text string) error {
	const want = "want https://host or https://host:port, as the browser has it: in lower case, without a path, and without the scheme's own port"
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Scheme+"://"+u.Host != text ||
		u.Hostname() == "" || strings.HasSuffix(u.Host, ":") || strings.ContainsFunc(text, isNoOrigin) {
		return fmt.Errorf("%q: %s", strictjson.Clip(text), want)
	}
	if standard := map[string]string{"http": "80", "https": "443"}; u.Port() == standard[u.Scheme] {
		return fmt.Errorf("%q: %s", strictjson.Clip(text), want)
	}
	return nil
}

// isNoOrigin reports whether a rune is in no origin. Names in further scripts are in their
// ASCII form there.
func isNoOrigin(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-._:/[]", r)
}

// corsMaxAge is for how long a browser remembers the answer to a preflight, in seconds;
// Chromium for no longer in any case.
const corsMaxAge = "7200"

// allowOrigin lets the pages of [Config.AllowOrigins] read all below [pathOfViewers],
// errors included. There are no cookies, and so no credentials: a page has to have the token.
func (s *Server) allowOrigin(header http.Header, r *http.Request) {
	if !isForViewers(r) {
		return
	}
	header[echo.HeaderVary] = variesBy
	if origin := r.Header.Get(echo.HeaderOrigin); slices.Contains(s.cfg.AllowOrigins, origin) {
		header[echo.HeaderAccessControlAllowOrigin] = []string{origin}
		header[echo.HeaderAccessControlExposeHeaders] = exposed
	}
}

// preflight answers the question that a browser asks before it sends a page's request.
func (s *Server) preflight(c *call) (any, error) {
	header := c.Response().Header()
	if header.Get(echo.HeaderAccessControlAllowOrigin) != "" {
		header.Set(echo.HeaderAccessControlAllowMethods, "GET, PUT, POST, DELETE")
		header.Set(echo.HeaderAccessControlAllowHeaders, "Authorization, Content-Type, If-None-Match")
		header.Set(echo.HeaderAccessControlMaxAge, corsMaxAge)
	}
	return nil, nil //nolint:nilnil // 204
}
