package api

import (
	_ "embed" // for widgetScript
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

// widgetScript is the custom element that sites put on their pages; docs/page.md describes it.
//
//go:embed widget.js
var widgetScript []byte

var widgetTag = entityTag(widgetScript)

// widgetAge is how long a browser uses the widget without asking again.
const widgetAge = 10 * time.Minute

// serveWidget answers the pages of every origin: the widget is no secret, and the same for
// all members.
func (s *Server) widget(c *call) error {
	header := c.Response().Header()
	header.Set(echo.HeaderCacheControl, fmt.Sprintf("public, max-age=%d", int(widgetAge.Seconds())))
	header.Set(echo.HeaderAccessControlAllowOrigin, "*")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin")
	header.Set("ETag", widgetTag)
	if namesTag(c.Request().Header.Values("If-None-Match"), widgetTag) {
		return c.NoContent(http.StatusNotModified)
	}
	return c.Blob(http.StatusOK, "text/javascript; charset=utf-8", widgetScript)
}
