package api

import "github.com/labstack/echo/v4"

// isOperator tells whether the caller may see what a viewer may not: whom a block
// hides, and when somebody uploaded what is not visible.
func isOperator(echo.Context) bool { return false }
