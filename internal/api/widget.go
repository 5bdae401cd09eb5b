package api

import (
	_ "embed" // for widgetScript

	"github.com/labstack/echo/v4"
)

// widgetScript is the custom element that sites put on their pages; docs/page.md describes it.
//
//go:embed widget.js
var widgetScript []byte

var widgetTag = entityTag(widgetScript)

// widgetCache has a browser use the widget for ten minutes without asking again.
const widgetCache = "public, max-age=600"

// serveWidget answers the pages of every origin: the widget is no secret, and the same for
// all members.
func (s *Server) widget(c *call) (any, error) {
	header := c.Response().Header()
	header.Set(echo.HeaderAccessControlAllowOrigin, "*")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin")
	return nil, c.tagged(widgetCache, widgetTag, "text/javascript; charset=utf-8", widgetScript)
}
