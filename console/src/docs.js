// The API's reference: Swagger UI on this server's own document. A key that is entered stays in memory.

import SwaggerUI from "swagger-ui-dist/swagger-ui-bundle.js";

SwaggerUI({
  url: "openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  persistAuthorization: false,
  tryItOutEnabled: true,
  validatorUrl: null,
});
