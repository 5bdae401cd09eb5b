package api

import (
	_ "embed" // for the document below
	"net/http"

	"github.com/labstack/echo/v4"
)

//go:embed openapi.yaml
var openAPIDocument []byte

func (s *Server) openAPI(c echo.Context) error {
	return c.Blob(http.StatusOK, "application/yaml", openAPIDocument)
}
